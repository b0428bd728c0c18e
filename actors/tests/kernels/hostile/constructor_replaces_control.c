/* Maps a page of its own over the one that holds the second filter.
 *
 * check: RuntimeError, Timeout
 * measure: RuntimeError, Timeout
 */
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((constructor)) static void replace(void)
{
    void *at = (void *)0x2000000000;
    if (mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
