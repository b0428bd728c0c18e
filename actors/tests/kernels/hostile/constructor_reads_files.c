/* Looks for secrets while it is loaded, when files may be opened.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <fcntl.h>
#include <stdlib.h>

__attribute__((constructor)) static void look(void)
{
    const char *names[] = {"/etc/passwd", "/proc/self/maps", "/proc/1/environ", "/dev/zero", "/sys/kernel", "../etc/passwd",
                           "/tmp", "/proc/self/fd/3", "/usr/lib"};
    for (int i = 0; i < 9; i++)
        if (open(names[i], O_RDONLY) >= 0)
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
