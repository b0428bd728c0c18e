/* Does not end.
 *
 * check: Timeout
 * measure: Timeout
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (;;)
        __asm__ volatile("");
}
