/* Forks without end.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (;;)
        fork();
}
