/* Calls a vendor library that it opens itself.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <dlfcn.h>
#include <stdlib.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW);
    if (!blas)
        abort();
    void (*cblas)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int) =
        dlsym(blas, "cblas_dgemm");
    cblas(101, 111, 111, m, n, k, 1, a, k, b, n, 1, c, n);
}
