void jacobi2d(int rows, int columns, double centre, double around, const double *restrict u, double *restrict next)
{
    for (int j = 0; j < columns; j++)
        for (int i = 0; i < rows; i++) {
            int edge = i == 0 || j == 0 || i == rows - 1 || j == columns - 1;
            const double *p = u + i * columns + j;
            if (edge)
                next[i * columns + j] = *p;
            else
                next[i * columns + j] = centre * *p + around * (p[-columns] + p[columns] + p[-1] + p[1]);
        }
}
