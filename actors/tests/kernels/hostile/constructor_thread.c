/* Starts a thread while it is loaded, which keeps the first filter where the second is for one thread only.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

static volatile int loaded;

static void *linger(void *unused)
{
    while (!loaded)
        __asm__ volatile("");
    open("/kernel.so", O_RDONLY);
    loaded = 2;
    return unused;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    if (pthread_create(&thread, 0, linger, 0))
        abort();
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    loaded = 1;
    while (loaded == 1)
        __asm__ volatile("");
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
