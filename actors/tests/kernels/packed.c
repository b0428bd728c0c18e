#include <immintrin.h>
/* Blocks of A and B are copied into panels that a 6 x 8 register block reads in order; edges are padded with zeros. */
enum { MC = 96, KC = 256, NC = 512, MR = 6, NR = 8 };
static double pa[MC * KC] __attribute__((aligned(64)));
static double pb[KC * NC] __attribute__((aligned(64)));

static int min(int a, int b) { return a < b ? a : b; }

static void pack_a(const double *a, int k, int mc, int kc) {
    double *to = pa;
    for (int i = 0; i < mc; i += MR)
        for (int p = 0; p < kc; p++)
            for (int r = 0; r < MR; r++) *to++ = i + r < mc ? a[(i + r) * k + p] : 0;
}

static void pack_b(const double *b, int n, int nc, int kc) {
    double *to = pb;
    for (int j = 0; j < nc; j += NR)
        for (int p = 0; p < kc; p++)
            for (int v = 0; v < NR; v++) *to++ = j + v < nc ? b[p * n + j + v] : 0;
}

static void block(const double *a, const double *b, int kc, double *c, int n, int rows, int columns) {
    __m256d s[MR][2];
    for (int r = 0; r < MR; r++) s[r][0] = s[r][1] = _mm256_setzero_pd();
    for (int p = 0; p < kc; p++, a += MR, b += NR) {
        __m256d b0 = _mm256_load_pd(b), b1 = _mm256_load_pd(b + 4);
#pragma GCC unroll 6
        for (int r = 0; r < MR; r++) {
            __m256d x = _mm256_broadcast_sd(a + r);
            s[r][0] = _mm256_fmadd_pd(x, b0, s[r][0]);
            s[r][1] = _mm256_fmadd_pd(x, b1, s[r][1]);
        }
    }
    if (rows == MR && columns == NR) {
#pragma GCC unroll 6
        for (int r = 0; r < MR; r++, c += n) {
            _mm256_storeu_pd(c, _mm256_add_pd(_mm256_loadu_pd(c), s[r][0]));
            _mm256_storeu_pd(c + 4, _mm256_add_pd(_mm256_loadu_pd(c + 4), s[r][1]));
        }
        return;
    }
    double t[MR][NR];
    for (int r = 0; r < MR; r++) {
        _mm256_storeu_pd(t[r], s[r][0]);
        _mm256_storeu_pd(t[r] + 4, s[r][1]);
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < columns; v++) c[r * n + v] += t[r][v];
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c) {
    for (int j = 0; j < n; j += NC)
        for (int p = 0; p < k; p += KC) {
            int nc = min(NC, n - j), kc = min(KC, k - p);
            pack_b(b + p * n + j, n, nc, kc);
            for (int i = 0; i < m; i += MC) {
                int mc = min(MC, m - i);
                pack_a(a + i * k + p, k, mc, kc);
                for (int jj = 0; jj < nc; jj += NR)
                    for (int ii = 0; ii < mc; ii += MR)
                        block(pa + ii * kc, pb + jj * kc, kc, c + (i + ii) * n + j + jj, n, min(MR, mc - ii),
                              min(NR, nc - jj));
            }
        }
}
