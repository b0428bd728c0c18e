/* C += A * B in double precision, and how far single precision may be from it.
 *
 * A sum of k products and c, in any order, fused or not, is off by at most
 *     gamma (|c| + sum |a| |b|),  gamma = (k + 1) u / (1 - (k + 1) u),  u = 2^-24
 * (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1: each term goes through k + 1 roundings at
 * most). What double precision itself rounds, 2^-29 of that, is in the factor 1.01. Products below the normal range round
 * by 2^-149 at most. */
void sgemm_reference(int m, int n, int k, const float *restrict a, const float *restrict b, double *restrict c,
                     double *restrict bound)
{
    double u = 0x1p-24, gamma = (k + 1) * u / (1 - (k + 1) * u);
    for (int i = 0; i < m; i++) {
        double *sum = c + (long)i * n, *size = bound + (long)i * n;
        for (int j = 0; j < n; j++)
            size[j] = __builtin_fabs(sum[j]);
        for (int p = 0; p < k; p++) {
            double x = a[(long)i * k + p];
            for (int j = 0; j < n; j++) {
                double term = x * b[(long)p * n + j];
                sum[j] += term;
                size[j] += __builtin_fabs(term);
            }
        }
        for (int j = 0; j < n; j++)
            size[j] = 1.01 * gamma * size[j] + k * 0x1p-149;
    }
}
