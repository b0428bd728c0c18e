void sgemm(int m, int n, int k, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int p = 0; p < k; p++)
                sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] += sum;
        }
}
