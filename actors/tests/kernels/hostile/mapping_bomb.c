/* Takes all memory by mappings that it shares with nobody.
 *
 * check: RuntimeError, Timeout
 * measure: RuntimeError, Timeout
 */
#include <string.h>
#include <sys/mman.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (;;)
        memset(mmap(0, 1 << 24, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 1, 1 << 24);
}
