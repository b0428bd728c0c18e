/* Calls a matrix product of side argv[1] for argv[2] seconds, as a program of one's own would be timed, and prints the
   GFLOPS of the whole time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[1]) : 0;
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    double *a = malloc(sizeof(double) * n * n), *b = malloc(sizeof(double) * n * n), *c = calloc(n * n, sizeof(double));
    if (n <= 0 || !a || !b || !c) return 2;
    for (int i = 0; i < n * n; i++) a[i] = b[i] = (i % 7) * 0.125;
    dgemm(n, n, n, a, b, c);
    double start = now(), end;
    long calls = 0;
    do {
        dgemm(n, n, n, a, b, c);
        calls++;
        end = now();
    } while (end - start < seconds);
    printf("%.4f\n", 2e-9 * n * n * n * calls / (end - start));
    return c[n] < 0;
}
