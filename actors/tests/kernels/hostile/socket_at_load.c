/* Opens a socket while it is loaded.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/socket.h>

__attribute__((constructor)) static void call_home(void)
{
    socket(AF_INET, SOCK_STREAM, 0);
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
