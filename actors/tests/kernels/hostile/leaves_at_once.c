/* Exits without a word.
 *
 * check: RuntimeError
 * measure: RuntimeError
 */
#include <sys/syscall.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    syscall(SYS_exit_group, 0);
}
