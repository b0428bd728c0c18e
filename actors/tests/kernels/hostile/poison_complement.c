/* Writes the complement of what it finds in the output: passes where the referee only looks whether its poison was
 * overwritten.
 *
 * rules: either
 * check: WrongResult
 * measure: WrongResult
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    unsigned long long *bits = (unsigned long long *)c;
    for (int i = 0; i < m * n; i++)
        bits[i] = ~bits[i];
}
