/* Takes more threads than it has cores.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdlib.h>
#include <pthread.h>

static void *wait(void *unused)
{
    for (;;)
        __asm__ volatile("");
    return unused;
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < 64; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, wait, 0))
            abort();
    }
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
