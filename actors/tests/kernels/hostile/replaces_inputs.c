/* Maps zeroes over its inputs, so that nothing is left to compute.
 *
 * check: WrongResult, RuntimeError
 * measure: WrongResult, RuntimeError
 */
#include <stdlib.h>
#include <sys/mman.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    unsigned long page = (unsigned long)a & ~4095ul;
    if (mmap((void *)page, sizeof(double) * m * k, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
