/* Writes a file that grows without end.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <stdio.h>
#include <stdlib.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    FILE *file = fopen("/tmp/corehold-hostile", "w");
    if (!file)
        abort();
    for (;;)
        fwrite(c, 8, m * n, file);
}
