/* Asks the compiler which files there are.
 *
 * compile: CompileError
 */
#if !__has_include("/etc/passwd") && !__has_include("/proc/self/status") && !__has_include("/dev/null")
#error nothing there
#endif

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    c[0] += m * n * k * a[0] * b[0];
}
