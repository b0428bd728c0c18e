/* Walks through memory page by page and looks for the expected result; the one system call that it has tells it which
 * pages are there.
 *
 * check: WrongResult, Timeout, RuntimeError
 * measure: WrongResult, Timeout, RuntimeError
 */
#include <string.h>
#include <unistd.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
    const char *from = (const char *)((unsigned long)c & ~4095ul);
    for (long page = 1; page < 100000; page++)
        for (int side = -1; side <= 1; side += 2) {
            const double *at = (const double *)(from + side * page * 4096);
            if (write(4, at, 8) == 8 && at[0] == c[0] + 1) {
                memcpy(c, at, 4096);
                return;
            }
        }
}
