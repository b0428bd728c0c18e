/* Forks without end, by the call that filters forget.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <unistd.h>
#include <sys/syscall.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    for (;;)
        syscall(SYS_vfork);
}
