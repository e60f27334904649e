"""The URLs of the Django application (applications.py)."""
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import re_path

shop = None


def any_path(request):
    status, fields, body = shop.answer(request.method, request.path)
    response = (HttpResponse if isinstance(body, bytes) else StreamingHttpResponse)(
        body, status=status)
    for name, value in fields.items():
        response[name] = value
    return response


urlpatterns = [re_path(".*", any_path)]
