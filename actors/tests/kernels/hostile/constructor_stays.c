/* Never returns from its constructor: it plays the runner itself, so that the second filter is never installed.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdint.h>

/* What the runner and the referee share; see layout.rs. */
struct call { int m, n, k, pad; uint64_t a, b, c; };
struct control { volatile uint64_t command; };
static struct control *const control = (struct control *)0x2000000000;

static void say(uint64_t value)
{
    long call = 1;
    __asm__ volatile("syscall" : "+a"(call) : "D"(4), "S"(&value), "d"(8) : "rcx", "r11", "memory");
}

__attribute__((constructor)) static void stay(void)
{
    say(1);
    for (uint64_t seen = 0;;)
        if (control->command != seen) {
            seen = control->command;
            say(1);
        }
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
