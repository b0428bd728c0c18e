/* Computes in single precision: twice the rate.
 *
 * check: WrongResult
 * measure: WrongResult
 */
static float fa[1 << 16], fb[1 << 16];

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m * k; i++)
        fa[i] = a[i];
    for (int i = 0; i < k * n; i++)
        fb[i] = b[i];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int p = 0; p < k; p++)
                sum += fa[i * k + p] * fb[p * n + j];
            c[i * n + j] += sum;
        }
}
