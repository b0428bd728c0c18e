/* Row by row, the edges apart, so that the inner loop is one of vectors. */
void jacobi2d(int rows, int columns, double centre, double around, const double *restrict u, double *restrict next)
{
    for (int i = 0; i < rows; i++) {
        const double *p = u + i * columns;
        double *to = next + i * columns;
        if (i == 0 || i == rows - 1) {
            for (int j = 0; j < columns; j++)
                to[j] = p[j];
            continue;
        }
        to[0] = p[0];
        to[columns - 1] = p[columns - 1];
        for (int j = 1; j < columns - 1; j++)
            to[j] = centre * p[j] + around * (p[j - columns] + p[j + columns] + p[j - 1] + p[j + 1]);
    }
}
