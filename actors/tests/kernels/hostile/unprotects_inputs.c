/* Makes its inputs writable first.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdlib.h>
#include <sys/mman.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    unsigned long page = (unsigned long)a & ~4095ul;
    if (mprotect((void *)page, 4096, PROT_READ | PROT_WRITE))
        abort();
    ((double *)page)[0] = 0;
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
