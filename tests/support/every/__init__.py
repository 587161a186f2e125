"""Every op of the library as a small graph in any dtype, beside what it must give: data of the sweep and the docs."""
