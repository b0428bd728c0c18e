void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double s = c[i * n + j];
            for (int p = 0; p < k; p++) s += a[i * k + p] * b[p * n + j];
            c[i * n + j] = s;
        }
}
