/* Opens a vendor library while it is loaded, when files may be opened.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <dlfcn.h>
#include <stdlib.h>

static void (*cblas)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);

__attribute__((constructor)) static void find(void)
{
    const char *names[] = {"libopenblas.so.0", "libblas.so.3", "/usr/lib/x86_64-linux-gnu/libopenblas.so.0"};
    for (int i = 0; i < 3 && !cblas; i++) {
        void *blas = dlopen(names[i], RTLD_NOW);
        if (blas)
            cblas = dlsym(blas, "cblas_dgemm");
    }
    if (!cblas)
        abort();
}

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    cblas(101, 111, 111, m, n, k, 1, a, k, b, n, 1, c, n);
}
