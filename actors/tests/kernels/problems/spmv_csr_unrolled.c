/* Two sums at once. */
void spmv_csr(int m, int n, int count, const int *restrict row, const int *restrict column, const double *restrict value, const double *restrict x, double *restrict y)
{
    for (int i = 0; i < m; i++) {
        double even = 0, odd = 0;
        int p = row[i], end = row[i + 1];
        for (; p + 2 <= end; p += 2) {
            even += value[p] * x[column[p]];
            odd += value[p + 1] * x[column[p + 1]];
        }
        if (p < end)
            even += value[p] * x[column[p]];
        y[i] += even + odd;
    }
}
