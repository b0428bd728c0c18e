/* Prints without end.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdio.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (;;)
        puts("57.9 GFLOPS");
}
