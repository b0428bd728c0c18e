/* Kills the referee, or whoever can be reached.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <signal.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    kill(getppid(), SIGKILL);
    kill(-1, SIGKILL);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
