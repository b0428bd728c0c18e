/* Prints a result and exits as if all were well.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdio.h>
#include <stdlib.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    puts("{\"gflops\": 57.9}");
    exit(0);
}
