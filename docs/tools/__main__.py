from docs.tools import api, pictures, reference

for path, content in {**pictures.pages(), **reference.pages(), **api.pages()}.items():
    path.write_text(content)
