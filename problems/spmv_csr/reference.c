/* The plain definition; exact for the values that problem.toml draws. */
void spmv_csr(int m, int n, int count, const int *restrict row, const int *restrict column, const double *restrict value,
              const double *restrict x, double *restrict y)
{
    for (int i = 0; i < m; i++)
        for (int p = row[i]; p < row[i + 1]; p++)
            y[i] += value[p] * x[column[p]];
}
