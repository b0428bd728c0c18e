#include <immintrin.h>
/* 4 x 12 register blocks with FMA; edges in plain C. */
static void edge(int i0, int i1, int j0, int j1, int n, int k, const double *a, const double *b, double *c) {
    for (int i = i0; i < i1; i++)
        for (int p = 0; p < k; p++)
            for (int j = j0; j < j1; j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
}
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c) {
    int mm = m / 4 * 4, nn = n / 12 * 12;
    for (int j = 0; j < nn; j += 12)
        for (int i = 0; i < mm; i += 4) {
            __m256d s[4][3];
            for (int r = 0; r < 4; r++)
                for (int v = 0; v < 3; v++) s[r][v] = _mm256_loadu_pd(c + (i + r) * n + j + 4 * v);
            for (int p = 0; p < k; p++) {
                __m256d b0 = _mm256_loadu_pd(b + p * n + j), b1 = _mm256_loadu_pd(b + p * n + j + 4),
                        b2 = _mm256_loadu_pd(b + p * n + j + 8);
                for (int r = 0; r < 4; r++) {
                    __m256d x = _mm256_broadcast_sd(a + (i + r) * k + p);
                    s[r][0] = _mm256_fmadd_pd(x, b0, s[r][0]);
                    s[r][1] = _mm256_fmadd_pd(x, b1, s[r][1]);
                    s[r][2] = _mm256_fmadd_pd(x, b2, s[r][2]);
                }
            }
            for (int r = 0; r < 4; r++)
                for (int v = 0; v < 3; v++) _mm256_storeu_pd(c + (i + r) * n + j + 4 * v, s[r][v]);
        }
    edge(0, mm, nn, n, n, k, a, b, c);
    edge(mm, m, 0, n, n, k, a, b, c);
}
