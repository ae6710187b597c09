"""A Django site in one file, with limits for the site, an async view, and failed log-ins.

Run it: python examples/django_app.py           sends requests to itself, shows the responses
        python examples/django_app.py --serve   serves at http://127.0.0.1:8000
"""

import logging
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path

from penstock.integrations import Response, by_api_key

# In a normal project, these two settings are enough.
MIDDLEWARE = ["penstock.integrations.django.PenstockMiddleware"]
PENSTOCK = {"limit": "100/minute", "name": "all", "exempt": ["/health"]}

settings.configure(
    SECRET_KEY="only for this example",
    ALLOWED_HOSTS=["127.0.0.1", "localhost", "testserver"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=MIDDLEWARE,
    PENSTOCK=PENSTOCK,
    LOGGING_CONFIG=None,
)
django.setup()

from penstock.integrations.django import limit  # noqa: E402 - reads the settings above


def failed(response: Response) -> bool:
    return response.status == 401


@limit("3/second", key=by_api_key())
async def search(request: HttpRequest, word: str) -> JsonResponse:
    return JsonResponse([f"{word} {number}" for number in range(3)], safe=False)


@limit("3/minute lockout 15m", count_when=failed)
def log_in(request: HttpRequest) -> HttpResponse:
    if request.GET.get("password") != "open sesame":
        return HttpResponse("wrong password", status=401)
    return HttpResponse("welcome")


def health(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


urlpatterns = [
    path("search/<str:word>", search),
    path("log-in", log_in),
    path("health", health),
]


def show(answer: HttpResponse) -> None:
    text = answer.content.decode()
    print(f"  {answer.status_code}  {text:<50} {answer.headers.get('RateLimit')}")


def ask_ourselves() -> None:
    logging.getLogger("django.request").setLevel("ERROR")  # do not log each refusal
    client = Client()
    for key in ("ada's", "bob's"):
        print(f"{key} key searches, at most three times per second:")
        for _ in range(4):
            show(client.get("/search/penstock", headers={"X-API-Key": key}))
    print("Only wrong passwords count; after the third, log-ins are locked for 15 minutes:")
    for word in ("open sesame", "guess", "guess", "guess", "open sesame"):
        answer = client.get("/log-in", {"password": word})
        print(f"  {answer.status_code}  {word:<12} retry after", answer.headers.get("Retry-After"))
    print("This path is exempt:")
    show(client.get("/health"))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        execute_from_command_line([sys.argv[0], "runserver", "--noreload", "8000"])
    else:
        ask_ourselves()
