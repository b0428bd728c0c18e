/* Sums of four at once; what came before is added at the end of each four. */
void prefix_sum(int n, const long long *restrict x, long long *restrict y)
{
    long long sum = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        long long a = x[i], b = a + x[i + 1], c = x[i + 2], d = c + x[i + 3];
        y[i] = sum + a;
        y[i + 1] = sum + b;
        y[i + 2] = sum + b + c;
        y[i + 3] = sum + b + d;
        sum += b + d;
    }
    for (; i < n; i++) {
        sum += x[i];
        y[i] = sum;
    }
}
