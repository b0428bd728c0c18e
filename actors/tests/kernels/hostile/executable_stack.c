/* Runs machine code on its stack.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    unsigned char code[16] = {0xc3};
    __asm__ volatile("" : : "r"(code) : "memory");
    ((void (*)(void))code)();
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}
