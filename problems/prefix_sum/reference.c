/* The plain definition. Sums of n numbers of at most 10^9 fit 63 bits for every n that an array can have. */
void prefix_sum(int n, const long long *restrict x, long long *restrict y)
{
    long long sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        y[i] = sum;
    }
}
