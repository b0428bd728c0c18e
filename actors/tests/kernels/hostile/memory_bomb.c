/* Takes all memory.
 *
 * check: RuntimeError, Timeout
 * measure: RuntimeError, Timeout
 */
#include <stdlib.h>
#include <string.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (;;)
        memset(malloc(1 << 24), 1, 1 << 24);
}
