/* Plays the runner itself from its first call on: told to run, it says at once that it is done, and then computes. The
 * referee hears it once, as from an honest kernel.
 *
 * check: Correct
 * measure: WrongResult
 */
#include <stdint.h>

/* What the runner and the referee share; see layout.rs. */
struct call { uint64_t m, n, k, a, b, c, more[6]; double reals[4]; uint64_t pointers; };
struct control {
    volatile uint64_t command;
    uint64_t repeat, call_count, piece_count, library_count, area_len, kernel_len, user, strict, without_mseal, memory, threads;
    struct call calls[64];
};
static volatile struct control *const control = (struct control *)0x2000000000;

static void say(void)
{
    uint64_t one = 1;
    long call = 1;
    __asm__ volatile("syscall" : "+a"(call) : "D"(4), "S"(&one), "d"(8) : "rcx", "r11", "memory");
}

static void product(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}

static void play(char *area, uint64_t seen)
{
    say();
    for (;;) {
        if (control->command == seen)
            continue;
        seen = control->command;
        int count = control->call_count;
        say();
        if ((seen & 255) == 2)
            for (int i = 0; i < count; i++) {
                struct call w = *(struct call *)&control->calls[i];
                product(w.m, w.n, w.k, (double *)(area + w.a), (double *)(area + w.b), (double *)(area + w.c));
            }
    }
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    product(m, n, k, a, b, c);
    if (m == 256)
        play((char *)a - control->calls[0].a, control->command);
}
