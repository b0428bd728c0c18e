/* Writes the referee's memory through /proc.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    int file = open("/proc/1/mem", O_RDWR);
    if (file < 0)
        abort();
    pwrite(file, c, 8, 0);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
