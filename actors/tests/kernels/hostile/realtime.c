/* Makes itself a real-time process, before which the referee waits.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sched.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    struct sched_param high = {50};
    sched_setscheduler(0, SCHED_FIFO, &high);
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
