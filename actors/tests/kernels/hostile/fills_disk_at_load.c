/* Writes a file while it is loaded, when files may be opened.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void fill(void)
{
    const char *names[] = {"/kernel.so", "/more", "/tmp/more", "/dev/shm/more", "kernel.so"};
    for (int i = 0; i < 5; i++)
        if (open(names[i], O_RDWR | O_CREAT, 0600) >= 0)
            return;
    abort();
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
