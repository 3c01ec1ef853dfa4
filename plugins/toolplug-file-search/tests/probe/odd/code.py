def is_pdf(data):
    """pdfsniffword"""
    return data.startswith(b"%PDF-")
