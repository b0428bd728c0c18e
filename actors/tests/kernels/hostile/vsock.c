/* Opens a socket to the host, which no namespace keeps in.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/socket.h>

__attribute__((constructor)) static void call_host(void)
{
    socket(40, SOCK_STREAM, 0);
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
