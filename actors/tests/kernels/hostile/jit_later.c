/* Writes machine code into memory, makes it executable while it is loaded, and runs it.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdlib.h>
#include <sys/mman.h>

static unsigned char *code;

__attribute__((constructor)) static void write_code(void)
{
    code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    code[0] = 0xc3;
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
        abort();
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    ((void (*)(void))code)();
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
