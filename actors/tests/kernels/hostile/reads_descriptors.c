/* Looks for open files while it is loaded: standard input, the referee's, others.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

__attribute__((constructor)) static void look(void)
{
    struct stat is;
    char byte;
    for (int file = 0; file < 512; file++) {
        if (fstat(file, &is))
            continue;
        if (file > 2 && file != 4)
            return;
        if (file <= 2 && (is.st_rdev != makedev(1, 3) || read(file, &byte, 1) > 0))
            return;
    }
    abort();
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
