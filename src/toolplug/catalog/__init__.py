"""What a tool is: definitions, catalogs and the algebra that reshapes them."""
