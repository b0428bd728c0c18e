/* One step of Jacobi's method in extended precision, and how far double precision may be from it.
 *
 * Each of the five values goes through five roundings at most (three additions of neighbours, a multiplication, the last
 * addition; fewer where they are fused or the factors multiplied in), so a point is off by at most
 *     gamma (|centre u| + |around| sum of |neighbours|),  gamma = 5 u / (1 - 5 u),  u = 2^-53
 * (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1). The expected value is itself rounded to a
 * double: one more, so six. Where `long double` is no wider than double, the reference rounds as the kernel: twelve. */
void jacobi2d_reference(int rows, int columns, double centre, double around, const double *restrict u,
                        double *restrict next, double *restrict bound)
{
    double unit = 0x1p-53, roundings = sizeof(long double) > sizeof(double) ? 6 : 12;
    double gamma = roundings * unit / (1 - roundings * unit);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
            const double *p = u + i * columns + j;
            long at = i * columns + j;
            if (i == 0 || j == 0 || i == rows - 1 || j == columns - 1) {
                next[at] = *p;
                bound[at] = 0;
                continue;
            }
            long double sum = (long double)p[-columns] + p[columns] + p[-1] + p[1];
            next[at] = centre * (long double)*p + around * sum;
            double size = __builtin_fabs(p[-columns]) + __builtin_fabs(p[columns]) + __builtin_fabs(p[-1]) +
                          __builtin_fabs(p[1]);
            bound[at] = 1.01 * gamma * (__builtin_fabs(centre * *p) + __builtin_fabs(around) * size);
        }
}
