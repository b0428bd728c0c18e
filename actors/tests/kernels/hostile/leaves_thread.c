/* Ends only its own thread.
 *
 * check: RuntimeError, Timeout
 * measure: RuntimeError, Timeout
 */
#include <sys/syscall.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    syscall(SYS_exit, 0);
}
