void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c) {
    for (int i = 0; i < m; i++)
        for (int p = 0; p < k; p++) {
            double s = a[i * k + p];
            for (int j = 0; j < n; j++) c[i * n + j] += s * b[p * n + j];
        }
}
