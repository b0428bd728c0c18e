/* A thread that goes on after the call has returned, so that the clock has stopped when the work is done.
 *
 * check: WrongResult, RuntimeError
 * measure: RuntimeError
 */
#include <pthread.h>
#include <stdlib.h>

static int m_, n_, k_;
static const double *volatile a_, *volatile b_;
static double *volatile c_;

static void product(int m, int n, int k, const double *a, const double *b, double *c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}

static void *after(void *unused)
{
    product(m_, n_, k_, a_, b_, c_);
    return unused;
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    pthread_t thread;
    m_ = m, n_ = n, k_ = k, a_ = a, b_ = b, c_ = c;
    if (pthread_create(&thread, 0, after, 0))
        abort();
}
